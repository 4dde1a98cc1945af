-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- Appends that do not check IDs again that their process has written, version 7. To apply it
-- manually:
--
--   psql -v ON_ERROR_STOP=1 --single-transaction -f 007_batch.up.sql

-- Objects of other roles must not replace operators and functions of the server in this session.
SET search_path = pg_catalog, pg_temp;

-- A single row. Its xmin changes with each statement that removes or changes events or deletions,
-- except for the statements of DeleteTo, and when the row is restored from a dump.
CREATE TABLE refold.epochs (
    single  boolean PRIMARY KEY DEFAULT true CHECK (single),
    changes bigint  NOT NULL
);
INSERT INTO refold.epochs (changes) VALUES (0);

-- While deletions has a row, there is no epoch. DeleteTo therefore starts no epoch, and concurrent
-- deletions do not wait for each other. Any role that may delete events may run this function.
CREATE FUNCTION refold.next_epoch() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- A TRUNCATE may have an older snapshot of deletions than the one in which it removes the rows.
    IF TG_OP = 'TRUNCATE' OR TG_TABLE_NAME <> 'events' OR NOT EXISTS (SELECT FROM refold.deletions) THEN
        UPDATE refold.epochs SET changes = changes + 1;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER next_epoch AFTER UPDATE OR DELETE OR TRUNCATE ON refold.events
    FOR EACH STATEMENT EXECUTE FUNCTION refold.next_epoch();
CREATE TRIGGER next_epoch AFTER DELETE OR TRUNCATE ON refold.deletions
    FOR EACH STATEMENT EXECUTE FUNCTION refold.next_epoch();
-- The triggers also fire in a session with session_replication_role = replica.
ALTER TABLE refold.events ENABLE ALWAYS TRIGGER next_epoch;
ALTER TABLE refold.deletions ENABLE ALWAYS TRIGGER next_epoch;

-- append_batch stores all events or none. It returns NULL if it has stored them. _epoch is the epoch
-- in which the caller has stored, or found, the events before those of the IDs that are not in
-- _look_ids. If this is not the current epoch, the result is the current one, or '-' if there is none.
-- The result is '' if the highest number of an element of _look_ids is not that of _look_expects.
-- The other arrays have one element for each event, as those of append_many.
--
-- An epoch identifies the running server, the database, the table of events, and the row of epochs. Without an
-- epoch, stored events may be deleted, or may be lost when the server crashes. The epoch is read
-- after the first access to events, which keeps the table locked against TRUNCATE.
CREATE FUNCTION refold.append_batch(
    _class integer, _epoch text, _look_ids text[], _look_expects bigint[],
    _ids text[], _seq_nrs bigint[], _slices smallint[], _ats timestamptz[],
    _writers text[], _manifests text[], _payloads bytea[], _tags text[], _metadata bytea[]
) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    _drawn   bigint;
    _highest bigint;
    _current text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'events are appended in READ COMMITTED transactions, this one is %', upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'invalid_transaction_state', HINT = 'Look for default_transaction_isolation in the settings of the role, the database and the server.';
    END IF;
    SELECT o.last_value, (SELECT max(e.ordinal) FROM refold.events e) INTO _drawn, _highest FROM refold.ordinals o;
    IF _drawn < _highest THEN
        RAISE EXCEPTION 'sequence ordinals is at %, but there is event %', _drawn, _highest USING ERRCODE = 'RF001';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(_class, (_drawn & 2147483647)::integer);
    -- The triggers must exist and fire. A statement on a partition does not fire those of its table.
    SELECT concat_ws('/', extract(epoch FROM pg_postmaster_start_time()),
            (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()), 'refold.events'::regclass::oid, p.xmin) INTO _current
        FROM refold.epochs p
        WHERE current_setting('synchronous_commit') <> 'off' AND NOT EXISTS (SELECT FROM refold.deletions)
            AND ('r', 'p') = (SELECT c.relkind, c.relpersistence FROM pg_class c WHERE c.oid = 'refold.events'::regclass)
            AND 'A' = (SELECT t.tgenabled FROM pg_trigger t WHERE t.tgrelid = 'refold.events'::regclass AND t.tgname = 'next_epoch')
            AND 'A' = (SELECT t.tgenabled FROM pg_trigger t WHERE t.tgrelid = 'refold.deletions'::regclass AND t.tgname = 'next_epoch');
    _current := coalesce(_current, '-');
    IF _current <> _epoch THEN
        RETURN _current;
    END IF;
    -- The last event of an ID is deleted after the others, so deletions counts only if there is none.
    IF _look_ids IS NOT NULL AND EXISTS (
        SELECT FROM (SELECT unnest(_look_ids) AS id, unnest(_look_expects) AS expect) AS h
        WHERE h.expect <> coalesce(
            (SELECT e.seq_nr FROM refold.events e WHERE e.id = h.id AND e.seq_nr >= h.expect ORDER BY e.seq_nr DESC LIMIT 1),
            (SELECT d.deleted_to FROM refold.deletions d WHERE d.id = h.id), 0)) THEN
        RETURN '';
    END IF;
    IF _tags IS NULL THEN
        INSERT INTO refold.events (id, seq_nr, ordinal, slice, at, writer, manifest, payload, metadata)
            SELECT e.id, e.seq_nr, nextval('refold.ordinals'), e.slice, e.at, e.writer, e.manifest, e.payload, e.metadata
            FROM (SELECT unnest(_ids) AS id, unnest(_seq_nrs) AS seq_nr, unnest(_slices) AS slice, unnest(_ats) AS at,
                unnest(_writers) AS writer, unnest(_manifests) AS manifest, unnest(_payloads) AS payload, unnest(_metadata) AS metadata) AS e;
    ELSE
        WITH stored AS (
            INSERT INTO refold.events (id, seq_nr, ordinal, slice, at, writer, manifest, payload, tags, metadata)
                SELECT e.id, e.seq_nr, nextval('refold.ordinals'), e.slice, e.at, e.writer, e.manifest, e.payload, e.tags::text[], e.metadata
                FROM (SELECT unnest(_ids) AS id, unnest(_seq_nrs) AS seq_nr, unnest(_slices) AS slice, unnest(_ats) AS at,
                    unnest(_writers) AS writer, unnest(_manifests) AS manifest, unnest(_payloads) AS payload, unnest(_tags) AS tags, unnest(_metadata) AS metadata) AS e
                RETURNING ordinal, tags
        )
        INSERT INTO refold.tags (tag, ordinal)
            SELECT DISTINCT t.tag, s.ordinal FROM stored s, unnest(s.tags) AS t(tag);
    END IF;
    RETURN NULL;
END
$$;

-- The roles that may insert events keep their rights, as in version 6.
DO $do$
DECLARE
    _role record;
BEGIN
    FOR _role IN
        SELECT DISTINCT pg_get_userbyid(a.grantee) AS name FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid = 'refold.events'::regclass AND a.privilege_type = 'INSERT' AND a.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION refold.append_batch TO %I', _role.name);
        EXECUTE format('GRANT SELECT ON refold.epochs TO %I', _role.name);
    END LOOP;
END
$do$;
REVOKE EXECUTE ON FUNCTION refold.append_batch, refold.next_epoch FROM PUBLIC;

INSERT INTO refold.migrations (version, name) VALUES (7, '007_batch');
