-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- Reverts 002_projection.up.sql and deletes all positions. No program runs this file.

DROP TABLE refold.projections;
DELETE FROM refold.migrations WHERE version = 2;
