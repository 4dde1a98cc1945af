-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- The search path of the functions, version 4. To apply it manually:
--
--   psql -v ON_ERROR_STOP=1 --single-transaction -f 004_search_path.up.sql

-- Objects of other roles must not replace operators and functions of the server in this session.
SET search_path = pg_catalog, pg_temp;

-- Another role that can create objects in a schema of the caller's search path, such as public,
-- could replace an operator or a function that these bodies use, and would run as the caller.
ALTER FUNCTION refold.highest(text) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION refold.append_one(integer, text, bigint, smallint, timestamptz, text, text, bytea, text[], bytea)
    SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION refold.append_many(integer, text[], bigint[], integer[], text[], bigint[], smallint[], timestamptz[], text[], text[], bytea[], text[], bytea[])
    SET search_path = pg_catalog, pg_temp;

INSERT INTO refold.migrations (version, name) VALUES (4, '004_search_path');
