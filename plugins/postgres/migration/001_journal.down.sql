-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- Takes 001_journal.up.sql back, and with it every event and snapshot. No
-- program runs this.

DROP FUNCTION refold.append_many;
DROP FUNCTION refold.append_one;
DROP FUNCTION refold.highest;
DROP TABLE refold.snapshots;
DROP TABLE refold.deletions;
DROP TABLE refold.tags;
DROP TABLE refold.events;
DROP SEQUENCE refold.ordinals;
DROP TABLE refold.migrations;
