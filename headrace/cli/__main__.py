from headrace.cli import main

main()
