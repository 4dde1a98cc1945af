-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- Reverts 001_journal.up.sql and deletes all events and snapshots. No program runs this file.

DROP FUNCTION refold.append_many;
DROP FUNCTION refold.append_one;
DROP FUNCTION refold.highest;
DROP TABLE refold.snapshots;
DROP TABLE refold.deletions;
DROP TABLE refold.tags;
DROP TABLE refold.events;
DROP SEQUENCE refold.ordinals;
DROP TABLE refold.migrations;
