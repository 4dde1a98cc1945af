-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- Reverts 005_conflict.up.sql. No program runs this file.

CREATE OR REPLACE FUNCTION refold.highest(_id text) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT greatest(
        (SELECT e.seq_nr FROM refold.events e WHERE e.id = _id ORDER BY e.seq_nr DESC LIMIT 1),
        (SELECT d.deleted_to FROM refold.deletions d WHERE d.id = _id),
        0)
$$;
DELETE FROM refold.migrations WHERE version = 5;
