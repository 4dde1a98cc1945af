-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- The journal and the snapshot store of Refold, version 1.
--
-- The program runs this file in one transaction and replaces "refold." by its schema. To run it
-- manually:
--
--   psql -c 'CREATE SCHEMA refold'
--   psql -v ON_ERROR_STOP=1 --single-transaction -f 001_journal.up.sql

-- Objects of other roles must not replace operators and functions of the server in this session.
SET search_path = pg_catalog, pg_temp;

-- The applied migrations. A program rejects a schema with a version that it does not support.
CREATE TABLE refold.migrations (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- The total order of events. The numbers of a failed transaction are not used again, so there are
-- gaps. Sessions must not cache numbers, because the order would differ from that of the draws. The
-- first number is used here, because readers assume that last_value was drawn.
CREATE SEQUENCE refold.ordinals AS bigint CACHE 1;
SELECT setval('refold.ordinals', 1);

CREATE TABLE refold.events (
    seq_nr   bigint           NOT NULL, -- 1, 2, 3, ... of each ID
    ordinal  bigint           NOT NULL, -- position in the one order
    at       timestamptz      NOT NULL, -- when the event was numbered
    slice    smallint         NOT NULL, -- 0 to 1023, a hash of the ID
    id       text COLLATE "C" NOT NULL, -- persistence ID, compared byte by byte
    writer   text             NOT NULL, -- the incarnation that wrote it
    manifest text             NOT NULL, -- describes the payload; empty for a fence
    payload  bytea            NOT NULL, -- the encoded event
    tags     text[],                    -- NULL for none; see the table tags
    metadata bytea,                     -- NULL for none
    PRIMARY KEY (id, seq_nr)
);
-- A reader of some slices skips index entries of others, without reading their rows.
CREATE INDEX events_ordinal ON refold.events (ordinal, slice);

-- A large table that only grows is vacuumed and analyzed in small steps.
ALTER TABLE refold.events SET (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02);

-- The events that have a tag. A row is deleted with its event.
CREATE TABLE refold.tags (
    tag     text COLLATE "C" NOT NULL,
    ordinal bigint           NOT NULL,
    PRIMARY KEY (tag, ordinal)
);

-- The number up to which the events of an ID were deleted, or are being deleted. These numbers are
-- never used again.
CREATE TABLE refold.deletions (
    id         text COLLATE "C" PRIMARY KEY,
    deleted_to bigint           NOT NULL
);

CREATE TABLE refold.snapshots (
    id       text COLLATE "C" NOT NULL,
    seq_nr   bigint           NOT NULL, -- of the last event that it covers
    at       timestamptz      NOT NULL, -- the time of that event
    manifest text             NOT NULL,
    payload  bytea            NOT NULL,
    checksum bigint           NOT NULL, -- CRC-32C of the other columns
    PRIMARY KEY (id, seq_nr)
);

-- The functions below keep their plans between calls, also through a proxy. A plan that was made
-- for a small table must not read the whole table when it has grown, hence enable_seqscan = off.
-- That setting raises the estimated costs, which must not start the JIT compiler, hence jit = off.
--
-- Both append functions begin with a shared lock, so appends do not wait for each other. The lock
-- shows readers and deletions that the transaction is in progress. Its key is the last_value at the
-- begin of the transaction. The lock is taken before the check of the stored events and before the
-- first ordinal is drawn. The ordinals of all visible events were drawn before last_value is read. A
-- last_value below one of these ordinals therefore means that the tables were restored without the
-- sequence, which would draw the same ordinals a second time.

-- highest returns the highest number of an ID, 0 if it was never written.
CREATE FUNCTION refold.highest(_id text) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT greatest(
        (SELECT e.seq_nr FROM refold.events e WHERE e.id = _id ORDER BY e.seq_nr DESC LIMIT 1),
        (SELECT d.deleted_to FROM refold.deletions d WHERE d.id = _id),
        0)
$$;

-- append_one stores one event if the highest number of its ID is _expect, and returns NULL.
-- Otherwise it returns the highest number.
CREATE FUNCTION refold.append_one(
    _class integer, _id text, _expect bigint, _slice smallint, _at timestamptz,
    _writer text, _manifest text, _payload bytea, _tags text[], _metadata bytea
) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    _drawn   bigint;
    _highest bigint;
    _ordinal bigint;
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
    -- With its lower bound this looks at one index entry, and finds nothing if the number is lower.
    IF _expect <> coalesce(greatest(
            (SELECT e.seq_nr FROM refold.events e WHERE e.id = _id AND e.seq_nr >= _expect ORDER BY e.seq_nr DESC LIMIT 1),
            (SELECT d.deleted_to FROM refold.deletions d WHERE d.id = _id)), 0) THEN
        RETURN refold.highest(_id);
    END IF;
    INSERT INTO refold.events (id, seq_nr, ordinal, slice, at, writer, manifest, payload, tags, metadata)
        VALUES (_id, _expect + 1, nextval('refold.ordinals'), _slice, _at, _writer, _manifest, _payload, _tags, _metadata)
        RETURNING ordinal INTO _ordinal;
    IF _tags IS NOT NULL THEN
        INSERT INTO refold.tags (tag, ordinal) SELECT DISTINCT t.tag, _ordinal FROM unnest(_tags) AS t(tag);
    END IF;
    RETURN NULL;
END
$$;

-- append_many stores the events of many IDs. Element n of _ids and _expects is an ID and its
-- expected highest number. _heads has the n of each event, and the other arrays have one element for
-- each event. The events of an ID are stored together if its number is as expected, otherwise none
-- of them. The result is NULL if all events were stored. Otherwise it has NULL for each ID whose
-- events were stored, and the highest number for the others.
-- _tags has arrays in their text form. _tags and _metadata are NULL if no event has any. Arrays are
-- unnested together in SELECT, which does not materialize them as FROM does.
CREATE FUNCTION refold.append_many(
    _class integer, _ids text[], _expects bigint[],
    _heads integer[], _event_ids text[], _seq_nrs bigint[], _slices smallint[], _ats timestamptz[],
    _writers text[], _manifests text[], _payloads bytea[], _tags text[], _metadata bytea[]
) RETURNS bigint[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    _drawn   bigint;
    _highest bigint;
    _found   bigint[];
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
    -- With their lower bound these look at one index entry each, and find nothing if the number is lower.
    IF EXISTS (SELECT FROM refold.deletions) THEN
        _found := ARRAY(
            SELECT coalesce(greatest(
                (SELECT e.seq_nr FROM refold.events e WHERE e.id = h.id AND e.seq_nr >= h.expect ORDER BY e.seq_nr DESC LIMIT 1),
                (SELECT d.deleted_to FROM refold.deletions d WHERE d.id = h.id)), 0)
            FROM unnest(_ids, _expects) AS h(id, expect));
    ELSE
        _found := ARRAY(
            SELECT coalesce((SELECT e.seq_nr FROM refold.events e WHERE e.id = h.id AND e.seq_nr >= h.expect ORDER BY e.seq_nr DESC LIMIT 1), 0)
            FROM unnest(_ids, _expects) AS h(id, expect));
    END IF;
    IF _tags IS NULL THEN
        INSERT INTO refold.events (id, seq_nr, ordinal, slice, at, writer, manifest, payload, metadata)
            SELECT e.id, e.seq_nr, nextval('refold.ordinals'), e.slice, e.at, e.writer, e.manifest, e.payload, e.metadata
            FROM (SELECT unnest(_heads) AS head, unnest(_event_ids) AS id, unnest(_seq_nrs) AS seq_nr, unnest(_slices) AS slice, unnest(_ats) AS at,
                unnest(_writers) AS writer, unnest(_manifests) AS manifest, unnest(_payloads) AS payload, unnest(_metadata) AS metadata) AS e
            WHERE _found[e.head] = _expects[e.head];
    ELSE
        WITH stored AS (
            INSERT INTO refold.events (id, seq_nr, ordinal, slice, at, writer, manifest, payload, tags, metadata)
                SELECT e.id, e.seq_nr, nextval('refold.ordinals'), e.slice, e.at, e.writer, e.manifest, e.payload, e.tags::text[], e.metadata
                FROM (SELECT unnest(_heads) AS head, unnest(_event_ids) AS id, unnest(_seq_nrs) AS seq_nr, unnest(_slices) AS slice, unnest(_ats) AS at,
                    unnest(_writers) AS writer, unnest(_manifests) AS manifest, unnest(_payloads) AS payload, unnest(_tags) AS tags, unnest(_metadata) AS metadata) AS e
                WHERE _found[e.head] = _expects[e.head]
                RETURNING ordinal, tags
        )
        INSERT INTO refold.tags (tag, ordinal)
            SELECT DISTINCT t.tag, s.ordinal FROM stored s, unnest(s.tags) AS t(tag);
    END IF;
    IF _found = _expects THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(
        SELECT CASE WHEN h.found <> h.expect THEN refold.highest(h.id) END
        FROM unnest(_ids, _expects, _found) WITH ORDINALITY AS h(id, expect, found, n) ORDER BY h.n);
END
$$;

INSERT INTO refold.migrations (version, name) VALUES (1, '001_journal');
