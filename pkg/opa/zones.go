package opa

import (
	// Rules name time zones when they read clocks and calendars. The image of the manager may have
	// no database of time zones, and every zone would be unknown.
	_ "time/tzdata"
)
