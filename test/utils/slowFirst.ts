/**
 * The order of the test files: those that take longest begin first, so that no worker sits idle while one of them ends.
 *
 * Without results of an earlier run, as on a clean checkout, vitest goes by the size of the files, which says little:
 * a file of two lines runs a whole suite. A file without a place here costs time, nothing else.
 */
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { BaseSequencer, type TestSpecification } from "vitest/node"

/** Files of `test/`, the longest first. Others follow, in vitest's order. */
const slowest: ReadonlyArray<string> = [
  "runtime/crashes.long.test.ts",
  "chaos/unannounced.long.test.ts",
  "chaos/wrongDeploys.long.test.ts",
  "schedules/model.long.test.ts",
  "runtime/operators.long.test.ts",
  "chaos/outages.long.test.ts",
  "runtime/untakenSignals.long.test.ts",
  "tasks/suspects.long.test.ts",
  "chaos/wakeups.long.test.ts",
  "tasks/kill.long.test.ts",
  "tasks/recovery.long.test.ts",
  "runtime/warmInstances.long.test.ts",
  "prisma/indexes.long.test.ts",
  "scripts/bench.long.test.ts",
  "chaos/kill.long.test.ts",
  "examples/lite.long.test.ts",
  "package/pack.long.test.ts",
  "prisma/deadlock.long.test.ts",
  "prisma/backlog.long.test.ts",
  "scripts/checkDrift.long.test.ts",
  "provider/differential.long.test.ts",
  "runtime/bytes.long.test.ts",
  "tasks/closing.long.test.ts",
  "chaos/transactional.long.test.ts",
  "tasks/SqsQueue.long.test.ts",
  "tasks/MemoryQueue.long.test.ts",
  "prisma/deletion.random.long.test.ts",
  "runtime/retention.long.test.ts",
  "schedules/prisma.long.test.ts",
  "runtime/transactional.postgres.long.test.ts",
  "chaos/failover.long.test.ts",
  "dashboard/Dashboard.long.test.ts",
  "prisma/PrismaDriver.suite.partitions.long.test.ts",
  "prisma/PrismaDriver.suite.turns.test.ts",
  "prisma/PrismaDriver.suite.queues.test.ts",
  "prisma/PrismaDriver.suite.state.test.ts",
  "schedules/scheduler.test.ts",
  "tasks/PgQueue.test.ts",
  "prisma/PrismaDriver.suite.locks.test.ts",
  "prisma/PrismaDriver.suite.instances.test.ts",
  "provider/MemoryDriver.suite.test.ts",
  "docs/state.test.ts",
  "schedules/model.test.ts",
  "payloads/random.test.ts",
  "payloads/suite.test.ts",
  "payloads/operators.test.ts"
]

const rankOf = new Map(slowest.map((name, rank) => [fileURLToPath(new URL(`../${name}`, import.meta.url)), rank]))

for (const file of rankOf.keys()) {
  if (!existsSync(file)) throw new Error(`${file} is gone: mend test/utils/slowFirst.ts`)
}

export class SlowFirst extends BaseSequencer {
  override async sort(files: Array<TestSpecification>): Promise<Array<TestSpecification>> {
    const sorted = await super.sort(files)
    const rank = ({ moduleId }: TestSpecification) => rankOf.get(moduleId) ?? rankOf.size
    // One project after the other, as before, since each has workers of its own.
    const projects = [...new Set(sorted.map(({ project }) => project))]
    return projects.flatMap((project) =>
      sorted.filter((file) => file.project === project).sort((a, b) => rank(a) - rank(b))
    )
  }
}
