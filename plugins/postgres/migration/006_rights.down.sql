-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- Reverts 006_rights.up.sql. No program runs this file.

GRANT EXECUTE ON FUNCTION refold.highest, refold.append_one, refold.append_many TO PUBLIC;
DELETE FROM refold.migrations WHERE version = 6;
