-- Copyright 2026 The Refold Authors
-- SPDX-License-Identifier: Apache-2.0

-- Reverts 004_search_path.up.sql. No program runs this file.

ALTER FUNCTION refold.append_many RESET search_path;
ALTER FUNCTION refold.append_one RESET search_path;
ALTER FUNCTION refold.highest RESET search_path;
DELETE FROM refold.migrations WHERE version = 4;
