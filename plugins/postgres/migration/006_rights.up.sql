-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- The right to execute the functions, version 6. To apply it manually:
--
--   psql -v ON_ERROR_STOP=1 --single-transaction -f 006_rights.up.sql

-- Objects of other roles must not replace operators and functions of the server in this session.
SET search_path = pg_catalog, pg_temp;

-- PUBLIC has the right to execute a new function. The roles that may insert events keep this right.
DO $do$
DECLARE
    _role record;
BEGIN
    FOR _role IN
        SELECT DISTINCT pg_get_userbyid(a.grantee) AS name FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid = 'refold.events'::regclass AND a.privilege_type = 'INSERT' AND a.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION refold.highest, refold.append_one, refold.append_many TO %I', _role.name);
    END LOOP;
END
$do$;
REVOKE EXECUTE ON FUNCTION refold.highest, refold.append_one, refold.append_many FROM PUBLIC;

INSERT INTO refold.migrations (version, name) VALUES (6, '006_rights');
