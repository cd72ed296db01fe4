package opa

import (
	// Rules read clocks and calendars in time zones that they name. The image of the manager
	// need not have a database of them, and every one would be unknown then.
	_ "time/tzdata"
)
