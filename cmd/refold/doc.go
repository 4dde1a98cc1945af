// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command refold looks into journals, and measures Refold:
//
//	refold events                      the persistence IDs of leveldb:./bank-data
//	refold events 'account|42'         its events
//	refold snapshots 'account|42'      its snapshots
//	refold verify                      is anything missing or damaged?
//	refold rebuild 'account|42'        is its state what its events say?
//	refold tail --tag vip              the events of all, as they are stored
//	refold copy leveldb:A postgres://B a journal on another store, compared in the end
//	refold migrate --check             are the tables there that this version needs?
//	refold ddata diff --cluster NAME   do all nodes hold the same replicated data?
//	refold ddata disk stat --dir DIR   what nodes that are not running have of it
//	refold shards --cluster NAME       how many shards and entities each node has
//	refold remove-sharding-data TYPE   what coordinators keep in a journal, when all nodes are stopped
//	refold bench persist --json        a figure beside its limit and its goal
//
// --journal names another journal: leveldb:DIR, or postgres://USER@HOST/DATABASE,
// with ?schema=NAME for another schema than refold, or postgres: for the database
// that REFOLD_POSTGRES or PGHOST and the like name. It is opened for reading. A LevelDB directory must not be open in another
// process; a database may be in use.
//
// The exit status is 0 if all is well, 1 if problems were found or a goal is not
// met, and 2 if it could not be done.
//
// What needs the Go types of entities, such as rebuild, needs a program that has
// them: see package operator.
package main
