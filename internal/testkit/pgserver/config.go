// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgserver

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Config says how a server is to be.
type Config struct {
	// Settings are lines of postgresql.conf. They override the defaults: small, and durable as PostgreSQL
	// is by itself.
	Settings map[string]string
	// MaxFileSize is how large a file may become that the server writes, in
	// bytes, rounded down to 512. What does not fit meets an error as a full disk gives it. It
	// counts once the database exists. Defaults to no limit.
	MaxFileSize int64
	// StartTimeout bounds how long the server may take to be ready. Defaults to
	// 5 minutes.
	StartTimeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.StartTimeout == 0 {
		c.StartTimeout = 5 * time.Minute
	}
	return c
}

var settingName = regexp.MustCompile(`^[a-z_][a-z0-9_.]*$`)

func (c Config) validate() error {
	var errs []error
	for name, value := range c.Settings {
		if !settingName.MatchString(name) || strings.ContainsAny(value, "\n\x00") {
			errs = append(errs, fmt.Errorf("pgserver: Config.Settings: %q = %q is no setting", name, value))
		}
	}
	if c.MaxFileSize < 0 {
		errs = append(errs, fmt.Errorf("pgserver: Config.MaxFileSize is %d, less than 0", c.MaxFileSize))
	}
	if c.StartTimeout < 0 {
		errs = append(errs, fmt.Errorf("pgserver: Config.StartTimeout is %v, less than 0", c.StartTimeout))
	}
	return errors.Join(errs...)
}

// file returns postgresql.conf.
func (c Config) file(socketDir string, port int) string {
	settings := map[string]string{
		"listen_addresses":           "127.0.0.1",
		"port":                       fmt.Sprint(port),
		"unix_socket_directories":    socketDir,
		"unix_socket_permissions":    "0700",
		"max_connections":            "200",
		"shared_buffers":             "32MB",
		"max_wal_size":               "256MB",
		"min_wal_size":               "32MB",
		"jit":                        "off",
		"timezone":                   "UTC",
		"log_timezone":               "UTC",
		"lc_messages":                "C",
		"log_line_prefix":            "%m [%p] %d ",
		"log_min_messages":           "warning",
		"log_checkpoints":            "off",
		"tcp_keepalives_idle":        "30",
		"default_text_search_config": "pg_catalog.simple",
	}
	maps.Copy(settings, c.Settings)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		quoted := strings.ReplaceAll(strings.ReplaceAll(settings[name], `\`, `\\`), "'", "''")
		fmt.Fprintf(&b, "%s = '%s'\n", name, quoted)
	}
	return b.String()
}
