-- Earlier builds kept the user of a grant as a client had spelled it; a user's grants are found by the one spelling, in lower case.
UPDATE documents SET body = replace(body, i.value, lower(i.value)), entries = replace(entries, i.value, lower(i.value))
    FROM document_index i WHERE documents.space = 'host.grants' AND i.reach = documents.reach AND i.space = documents.space
    AND i.id = documents.id AND i.field = 'user' AND i.value <> lower(i.value);
UPDATE document_index SET value = lower(value) WHERE space = 'host.grants' AND field = 'user' AND value <> lower(value);
-- And what the audit log has beside its leaves about such grants goes with the user.
UPDATE facts SET user_id = lower(user_id) WHERE private IS NOT NULL AND user_id IS NOT NULL AND user_id <> lower(user_id);
