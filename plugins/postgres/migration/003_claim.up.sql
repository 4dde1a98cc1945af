-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- The claim of a rebuild, version 3. To apply it manually:
--
--   psql -v ON_ERROR_STOP=1 --single-transaction -f 003_claim.up.sql

-- Objects of other roles must not replace operators and functions of the server in this session.
SET search_path = pg_catalog, pg_temp;

-- The process that clears, or cleared, the read model of the last rebuild.
ALTER TABLE refold.projections ADD COLUMN claim text COLLATE "C" NOT NULL DEFAULT '';

-- Version 2 stored the claim as the offset: the claim of the clearing process in rows with the
-- mark, and "begin-" with a random text after a rebuild.
UPDATE refold.projections SET claim = at_offset, at_offset = '' WHERE clear OR at_offset LIKE 'begin-%';

INSERT INTO refold.migrations (version, name) VALUES (3, '003_claim');
