# No launcher starts the tests, even where one started ctest, which reads this first: without what lib/stp/processes would
# take for a launcher's words.
foreach(name IN ITEMS OMPI_COMM_WORLD_SIZE PMI_SIZE WORLD_SIZE SLURM_STEP_NUM_TASKS RANK TORCHELASTIC_USE_AGENT_STORE)
  unset(ENV{${name}})
endforeach()
