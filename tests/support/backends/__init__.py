"""The source distributions of other projects, whose tests are referees, and how these are run."""
