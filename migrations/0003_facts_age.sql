-- Events beyond their time are found by their age. Audit rows stay, so they are not in it.
CREATE INDEX facts_events_age ON facts (at) WHERE kind = 'event';
