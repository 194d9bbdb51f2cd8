-- Holds lie in their organization's reach, and only those that are open have a state to be found by and fall due.
UPDATE document_index SET reach = (SELECT 'o/' || d.organization FROM documents d
    WHERE d.reach = document_index.reach AND d.space = document_index.space AND d.id = document_index.id)
    WHERE space = 'host.holds' AND field = 'state' AND value NOT IN ('captured', 'voided');
DELETE FROM document_index WHERE space = 'host.holds' AND (field <> 'state' OR value IN ('captured', 'voided'));
UPDATE documents SET reach = 'o/' || organization WHERE space = 'host.holds';
UPDATE documents SET entries = '', lease_group = NULL, lease_token = NULL, due_at = NULL, lease_count = NULL
    WHERE space = 'host.holds' AND lease_group = 'ended';
UPDATE documents SET entries = (SELECT '{"index":[["state","' || i.value || '"]]}' FROM document_index i
    WHERE i.reach = documents.reach AND i.space = documents.space AND i.field = 'state' AND i.id = documents.id)
    WHERE space = 'host.holds' AND lease_group IS NOT NULL;
-- The books' rows are stamped by their versions: nothing of them is counted.
UPDATE documents SET stamp = version WHERE space IN ('host.holds', 'host.ledger', 'host.meters', 'host.spend');
DELETE FROM revisions WHERE space IN ('host.holds', 'host.ledger', 'host.meters', 'host.spend');
DELETE FROM group_sizes WHERE space = 'host.holds';
-- A row's write compares its stamp itself.
ALTER TABLE documents DROP COLUMN was;
