-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- Takes 002_projection.up.sql back, and with it how far projections have come. No
-- program runs this.

DROP TABLE refold.projections;
DELETE FROM refold.migrations WHERE version = 2;
