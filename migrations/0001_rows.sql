-- Rows, and what is derived from them. Text compares by bytes on both databases. No foreign keys: the committer keeps the
-- tables in step, and one unique index a table is what its writes wait on.
--
-- `stamp` is the revision of the row's space that its last write made; `was` is the stamp that this write had read, so that one
-- bulk statement can guard every row. `entries` repeats the row's index, unique and text entries, so that a locked row is whole.
CREATE TABLE documents (
    {row}
    reach TEXT {bytewise} NOT NULL,
    space TEXT {bytewise} NOT NULL,
    id TEXT {bytewise} NOT NULL,
    organization TEXT {bytewise} NOT NULL,
    user_id TEXT {bytewise},
    body TEXT NOT NULL,
    entries TEXT NOT NULL,
    lease_group TEXT {bytewise},
    lease_token TEXT {bytewise},
    version BIGINT NOT NULL,
    stamp BIGINT NOT NULL,
    was BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    due_at BIGINT,
    lease_count BIGINT,
    UNIQUE (reach, space, id)
) {hot};

-- Hand-outs, earliest due first; the token is there so that a group is counted without reading its rows.
CREATE INDEX documents_due ON documents (reach, space, lease_group, due_at, id, lease_token) WHERE lease_group IS NOT NULL;
-- The age of a group's oldest row.
CREATE INDEX documents_oldest ON documents (reach, space, lease_group, created_at) WHERE lease_group IS NOT NULL;
-- Hand-outs of the host's own rows across all reaches.
CREATE INDEX documents_host_due ON documents (space, lease_group, due_at, id)
    WHERE lease_group IS NOT NULL AND space >= 'host.' AND space < 'host/';

CREATE TABLE document_index (
    reach TEXT {bytewise} NOT NULL,
    space TEXT {bytewise} NOT NULL,
    field TEXT {bytewise} NOT NULL,
    value TEXT {bytewise} NOT NULL,
    id TEXT {bytewise} NOT NULL,
    PRIMARY KEY (reach, space, field, value, id)
) {clustered};

-- Sweeping the host's own rows across all reaches.
CREATE INDEX document_index_host ON document_index (space, field, value, reach, id) WHERE space >= 'host.' AND space < 'host/';

{text_table}

-- Unique values and names. `holder` is the JSON array of its key; `was` the holder that the write had read.
CREATE TABLE claims (
    reach TEXT {bytewise} NOT NULL,
    space TEXT {bytewise} NOT NULL,
    name TEXT {bytewise} NOT NULL,
    holder TEXT {bytewise} NOT NULL,
    was TEXT {bytewise} NOT NULL,
    PRIMARY KEY (reach, space, name)
) {clustered};

-- How often a space was written.
CREATE TABLE revisions (
    reach TEXT {bytewise} NOT NULL,
    space TEXT {bytewise} NOT NULL,
    revision BIGINT NOT NULL,
    was BIGINT NOT NULL,
    PRIMARY KEY (reach, space)
) {clustered_hot};

-- How many rows a group of a leased space holds.
CREATE TABLE group_sizes (
    reach TEXT {bytewise} NOT NULL,
    space TEXT {bytewise} NOT NULL,
    lease_group TEXT {bytewise} NOT NULL,
    total BIGINT NOT NULL,
    PRIMARY KEY (reach, space, lease_group)
) {clustered_hot};
