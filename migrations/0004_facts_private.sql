-- What an audit row has beside its leaf, and whose erasure takes it.
ALTER TABLE facts ADD COLUMN private TEXT;
ALTER TABLE facts ADD COLUMN user_id TEXT {bytewise};
CREATE INDEX facts_private ON facts (user_id, ordinal) WHERE private IS NOT NULL AND user_id IS NOT NULL;
