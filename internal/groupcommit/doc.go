// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package groupcommit batches the writes of many persistence IDs into few calls of
// journal.Journal.Append.
//
// A Writer collects the requests that arrive while an Append is in flight and sends them as one
// batch. Each request belongs to a Stream, which orders the writes of one persistence ID and stops
// after a failure, and to an Owner, which receives the outcome:
//
//	writer, err := groupcommit.New(j, journal.WriterConfig{})
//	writer.Submit(&groupcommit.Request{Write: write, Stream: &stream, Owner: owner})
//	// owner.Written is called with the outcome
//
// The Writer answers each request exactly once, in order of submission for each Stream. It never
// retries a write, and it sends no write of a Stream after one that failed.
package groupcommit
