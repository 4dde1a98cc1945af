-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- Conflicts that wait for synchronous standbys, version 5. To apply it manually:
--
--   psql -v ON_ERROR_STOP=1 --single-transaction -f 005_conflict.up.sql

-- Objects of other roles must not replace operators and functions of the server in this session.
SET search_path = pg_catalog, pg_temp;

-- highest returns the highest number of an ID for a conflict, 0 if it was never written. A conflict
-- proves that another transaction is committed, not that it has reached a synchronous standby. The
-- message makes the commit of the append wait for the standby as well.
CREATE OR REPLACE FUNCTION refold.highest(_id text) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pg_logical_emit_message(true, 'refold'::text, ''::text);
    SELECT greatest(
        (SELECT e.seq_nr FROM refold.events e WHERE e.id = _id ORDER BY e.seq_nr DESC LIMIT 1),
        (SELECT d.deleted_to FROM refold.deletions d WHERE d.id = _id),
        0)
$$;

INSERT INTO refold.migrations (version, name) VALUES (5, '005_conflict');
