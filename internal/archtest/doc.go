// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package archtest has tests of rules about this repository's source code that no linter checks:
//
//   - floors: a package imports only packages of lower floors, only examples, commands and tests
//     import a plugin, and no chain of imports leads from a folder through internal/ back into it;
//   - limits: the number of public packages and of their exported names;
//   - prose: comments, pages and messages avoid words that make them hard to read;
//   - pure cores: a protocol core has no clock, goroutine, channel, lock, log,
//     context or package state;
//   - dependencies: a user's program inherits few modules, and none that only tests need;
//   - sources: licence headers, a package comment in each package, short files, and tests that neither sleep nor skip.
//
// A new package may need a row in the tables at the top of floors_test.go, pure_test.go and
// deps_test.go.
package archtest
