-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- Reverts 003_claim.up.sql. No program runs this file.

UPDATE refold.projections SET at_offset = claim WHERE claim <> '' AND (clear OR at_offset = '');
ALTER TABLE refold.projections DROP COLUMN claim;
DELETE FROM refold.migrations WHERE version = 3;
