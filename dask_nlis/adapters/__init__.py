"""What people bring: estimators, modules and tables of other libraries, which are imported where they are used."""
