-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- Positions of projections, version 2. To apply it manually:
--
--   psql -v ON_ERROR_STOP=1 --single-transaction -f 002_projection.up.sql

-- Objects of other roles must not replace operators and functions of the server in this session.
SET search_path = pg_catalog, pg_temp;

-- The position of each range of slices. The ranges of a projection cover all 1,024 slices and do not
-- overlap.
CREATE TABLE refold.projections (
    projection  text COLLATE "C" NOT NULL, -- its name
    first_slice smallint         NOT NULL,
    slices      smallint         NOT NULL, -- the number of slices from first_slice
    at_offset   text COLLATE "C" NOT NULL, -- position in the journal; empty for the beginning
    clear       boolean          NOT NULL, -- the read model must be cleared first
    moved_at    timestamptz      NOT NULL DEFAULT now(),
    PRIMARY KEY (projection, first_slice)
);

-- Few rows that change often: leave room in their pages for the next versions.
ALTER TABLE refold.projections SET (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

INSERT INTO refold.migrations (version, name) VALUES (2, '002_projection');
