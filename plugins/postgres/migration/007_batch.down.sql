-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- Reverts 007_batch.up.sql. No program runs this file.

DROP TRIGGER next_epoch ON refold.events;
DROP TRIGGER next_epoch ON refold.deletions;
DROP FUNCTION refold.next_epoch;
DROP FUNCTION refold.append_batch;
DROP TABLE refold.epochs;
DELETE FROM refold.migrations WHERE version = 7;
