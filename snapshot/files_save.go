// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
)

// maxRestarts bounds how often a call restarts because another call changed its files. A call
// restarts only after another call has made progress.
const maxRestarts = 100

// Save writes the snapshot to a partial file, makes it durable, and renames it. Another snapshot
// with the same sequence number is therefore replaced atomically. A context that ends before the
// rename leaves no file. After an error while the rename is made durable, the snapshot may exist as
// a whole.
//
// Save fails with ErrTooLarge above FilesConfig.MaxSize. It fails with ErrInvalid for a sequence
// number or a time that the format cannot represent, and for a manifest of more than 4,096 bytes.
// It does not replace a file of a newer version, and fails with ErrNewerVersion instead.
func (f *Files) Save(ctx context.Context, s Snapshot) error {
	if !f.open.Enter() {
		return ErrClosed
	}
	defer f.open.Leave()
	err := s.Check(f.cfg.MaxSize)
	if err == nil {
		err = f.save(ctx, s)
	}
	if err != nil {
		return fmt.Errorf("snapshot: save %q at %d: %w", s.ID, s.SequenceNr, err)
	}
	return nil
}

func (f *Files) save(ctx context.Context, s Snapshot) error {
	target := f.path(s.ID, s.SequenceNr)
	var lost error
	for range maxRestarts {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if _, err := f.metadata(s.ID, s.SequenceNr); errors.Is(err, ErrNewerVersion) {
			return err // a damaged file may be replaced, that of a newer version may not
		}
		partial, err := f.writePartial(func(w io.Writer) error { return encode(w, s) })
		if err != nil {
			return err
		}
		err = f.publish(ctx, s.ID, partial, target)
		if errors.Is(err, fs.ErrNotExist) {
			lost = err // OpenFiles of another process removed the partial file
			continue
		}
		return err
	}
	return fmt.Errorf("its partial file was removed during each attempt: %w", lost)
}

func (f *Files) publish(ctx context.Context, id, partial, target string) error {
	err := f.makeIDDir(id)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = f.fs.Rename(partial, target)
	}
	if err != nil {
		f.discard(partial)
		return err
	}
	return f.fs.SyncDir(filepath.Dir(target))
}

// makeIDDir creates the directory of an ID and makes it durable. A directory that contains a
// snapshot is durable, because a snapshot is renamed only afterwards. A directory without snapshots
// may not be durable: such a directory may belong to a save that is in progress, or to a save that
// was interrupted before the sync of the parent directory.
func (f *Files) makeIDDir(id string) error {
	found, err := f.numbers(id)
	if err != nil || len(found) > 0 {
		return err
	}
	group := f.groupDir(id)
	for _, dir := range []string{group, f.idDir(id)} {
		if err := f.fs.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := f.fs.SyncDir(group); err != nil {
		return err
	}
	return f.fs.SyncDir(f.dir)
}
