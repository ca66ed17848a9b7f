"""Regression analysis of benchmark results: which benchmark became slower, since which commit.

This package reads pytest-benchmark results, keeps them in a store, computes the statistics and
writes the reports. All but the store is pure: numpy and pyarrow in, values out. ``kraft.spark``
runs the tasks of a large store; ``kraft regress compare`` runs the same functions on two files. It
needs the packages of ``kraft[regress]``, and neither Spark nor Java.

``points``            schema of the store, one row per run and benchmark; `Series`
``sources``           files of other tools -> pytest-benchmark documents
``results``, ``runs`` pytest-benchmark's JSON -> runs -> Arrow tables of points
``store``             versions of the store, a Delta table, and commits
``store_location``, ``data_files``  where its files are, and their layout
``ingest``, ``result_files``  result files -> the store, each run once
``earlier_store``     stores of kraft before it used Delta tables
``analysis``          the analysis of a store or another source of points
``store_source``, ``table_analysis``  its parts; ``tasks``: where they run
``run_selection``     the runs of two sides of a comparison
``series``            rows of one benchmark -> `Series`
``commit_order``      selects runs by project and branch, and orders them by the commit graph
``settings``          parameters of an analysis and their defaults
``findings``          results: change points, drifts, comparisons, scaling laws
``change_points``     change points (E-divisive) and the tests that confirm them
``energy_splits``     splits of a history by energy distance, and the t test of two levels
``segments``          temporary levels that a search by single splits misses
``drifts``            slow drifts
``variance_changes``  changes of variance
``series_analysis``   the whole analysis of one series
``bootstrap``         confidence intervals of ratios
``multiple_testing``  correction of p values for many tests
``comparison``        a candidate against its baseline
``project_rules``     thresholds, metrics and renames of a project's ``kraft-regress.toml``
``ruled_source``      any source of points with these rules applied
``bisection``         the commit of a change, and what to measure next; ``bisect_question`` asks,
                      ``measured_commits`` runs a command in a worktree
``verdicts``, ``verdict_store``  what people said about changes, and the ledger of it
``change_position``, ``verdict_matching``  the change to which a verdict belongs
``verdict_choice``, ``verdict_text``  new verdicts; texts about them for the reports
``publication``       sends a report to GitHub or a webhook
``scaling``           how time grows with size, and whether that growth changed
``terminal``, ``html``, ``markdown``, ``json_report``  the reports
``comparison_page``   the page of a comparison
``page_parts``        pieces of HTML pages, also for the fleet's report
``project_summary``, ``dashboard``  what is said about one project, and the page about all of them
``project_pages``     a folder with the pages of all projects
``live_store``, ``page_worker``, ``page_server``  the same, kept up to date and served on loopback;
                      ``live_comparison`` adds comparisons
``report_text``, ``plots``  texts that all reports share; the data of the page's plots
"""
