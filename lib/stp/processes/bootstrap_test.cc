// What launchers set, and what is left of it where something is missing or wrong.
#include "stp/processes/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "support/refusal.h"

namespace stp {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

std::optional<ProcessPlace> place(const Variables& variables) {
  return place_from_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string refused(const Variables& variables) {
  return refusal([&] { static_cast<void>(place(variables)); });
}

const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "16"},
                          {"LOCAL_RANK", "1"},
                          {"MASTER_ADDR", "node7"},
                          {"MASTER_PORT", "4000"}};

TEST(Bootstrap, ReadsTorchrun) {
  const auto found = place(kTorchrun);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->world_size, 16);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->address, "node7");
  EXPECT_EQ(found->port, 4000);
}

TEST(Bootstrap, LeavesTorchrunsOwnPortAlone) {
  Variables variables = kTorchrun;
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(place(variables)->port, 4001);
  variables["MASTER_PORT"] = "65535";
  EXPECT_EQ(place(variables)->port, 65534);
  variables["STP_MASTER_PORT"] = "77";
  EXPECT_EQ(place(variables)->port, 77);
}

TEST(Bootstrap, ReadsOpenMpiAndPrefersItToTheSlurmAroundIt) {
  const auto found = place({{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_PROCID", "0"},
                            {"SLURM_NTASKS", "1"},
                            {"SLURM_LOCALID", "0"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->world_size, 4);
  EXPECT_EQ(found->address, "127.0.0.1");
  EXPECT_EQ(found->port, 29500);
}

TEST(Bootstrap, ReadsSlurm) {
  const Variables one_node{{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"},    {"SLURM_LOCALID", "3"},
                           {"SLURM_NNODES", "1"}, {"SLURM_JOB_ID", "1234"}, {"SLURM_STEP_ID", "0"}};
  const auto found = place(one_node);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->local_rank, 3);
  EXPECT_EQ(found->address, "127.0.0.1");
  EXPECT_EQ(found->run, "1234");
  Variables two_nodes = one_node;
  two_nodes["SLURM_NNODES"] = "2";
  EXPECT_THAT(refused(two_nodes), HasSubstr("MASTER_ADDR: is not set"));
  two_nodes["MASTER_ADDR"] = "node1";
  EXPECT_EQ(place(two_nodes)->address, "node1");
}

TEST(Bootstrap, FindsNothingWhereNoLauncherIs) {
  EXPECT_FALSE(place({}));
  EXPECT_FALSE(place({{"MASTER_ADDR", "node1"}, {"WORLD_SIZE", "4"}}));
  // In a batch script, outside srun.
  EXPECT_FALSE(place({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}}));
}

TEST(Bootstrap, NamesTheVariableThatIsWrong) {
  const auto with = [](const std::string& name, const std::string& value) {
    Variables variables = kTorchrun;
    variables[name] = value;
    return refused(variables);
  };
  EXPECT_THAT(with("RANK", "16"), HasSubstr("RANK: \"16\" is no number of 0 to 15"));
  EXPECT_THAT(with("RANK", "-1"), HasSubstr("RANK: \"-1\""));
  EXPECT_THAT(with("RANK", "1x"), HasSubstr("RANK: \"1x\""));
  EXPECT_THAT(with("RANK", ""), HasSubstr("RANK: \"\""));
  EXPECT_THAT(with("WORLD_SIZE", "0"), HasSubstr("WORLD_SIZE: \"0\""));
  EXPECT_THAT(with("WORLD_SIZE", "99999999999999999999"), HasSubstr("WORLD_SIZE: "));
  EXPECT_THAT(with("LOCAL_RANK", "16"), HasSubstr("LOCAL_RANK: \"16\""));
  EXPECT_THAT(with("MASTER_PORT", "65536"), HasSubstr("MASTER_PORT: \"65536\""));
  for (const char* name : {"WORLD_SIZE", "LOCAL_RANK"}) {
    Variables variables = kTorchrun;
    variables.erase(name);
    EXPECT_THAT(refused(variables), HasSubstr(std::string(name) + ": is not set, but RANK is"));
  }
}

}  // namespace
}  // namespace stp
