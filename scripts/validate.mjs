// Runs the validation suite on every driver of this repository and prints a table of its topics.
//
// The last line is `validate: memory P passed F failed, prisma P passed F failed`; the exit code is 1 when a test
// failed or could not run. Seconds are those of the tests added up: on PostgreSQL many of them sleep side by side.

import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs"
import { fileURLToPath } from "node:url"

const report = "build/validate.json"

/** The first part of the name each suite is run under; a second part says how. */
const drivers = ["memory", "prisma"]
const files = { memory: "test/provider/MemoryDriver.suite", prisma: "test/prisma/PrismaDriver.suite" }

process.chdir(fileURLToPath(new URL("..", import.meta.url)))
mkdirSync("build", { recursive: true })
rmSync(report, { force: true }) // output of an earlier run must not be taken for this one

const started = performance.now()
const vitest = ["run", ...Object.values(files), "--reporter=json", `--outputFile=${report}`]
const { status } = spawnSync(process.execPath, ["node_modules/vitest/vitest.mjs", ...vitest], {
  stdio: ["ignore", "ignore", "inherit"]
})
const results = existsSync(report) ? JSON.parse(readFileSync(report, "utf8")).testResults : []
const tests = results.flatMap(testsOf)

console.log(row("driver", "topic", "passed", "failed", "seconds"))
for (const driver of drivers) {
  const ofDriver = tests.filter((test) => test.driver === driver)
  for (const topic of new Set(ofDriver.map((test) => test.topic))) {
    print(driver, topic, ofDriver.filter((test) => test.topic === topic))
  }
  print(driver, "total", ofDriver)
}
for (const { driver, message, name, topic } of tests.filter((test) => !test.passed)) {
  console.log(`\nFAILED ${driver} > ${topic} > ${name}\n${message}`)
}
console.log(`\n${((performance.now() - started) / 1000).toFixed(0)} seconds in all`)
console.log(`validate: ${drivers.map((driver) => `${driver} ${count(driver)}`).join(", ")}`)
process.exitCode = status === 0 && drivers.every((driver) => tests.some((test) => test.driver === driver)) ? 0 : 1

/** The tests of a file; one that could not be loaded counts as a failed test. */
function testsOf(file) {
  if (file.assertionResults.length === 0) {
    const driver = file.name.includes(files.memory) ? "memory" : "prisma"
    return [{ driver, topic: "none", name: file.name, passed: false, message: file.message, milliseconds: 0 }]
  }
  return file.assertionResults.map(({ ancestorTitles: [suite, topic], duration, failureMessages, status, title }) => {
    const [driver, ...mode] = suite.split(", ")
    return {
      driver,
      topic: [topic, ...mode].join(", "),
      name: title,
      // A skipped test counts as failed.
      passed: status === "passed",
      message: failureMessages.join("\n"),
      milliseconds: duration ?? 0
    }
  })
}

function count(driver) {
  const ofDriver = tests.filter((test) => test.driver === driver)
  const passed = ofDriver.filter((test) => test.passed).length
  return `${passed} passed ${ofDriver.length - passed} failed`
}

function print(driver, topic, ofTopic) {
  const passed = ofTopic.filter((test) => test.passed).length
  const seconds = ofTopic.reduce((sum, test) => sum + test.milliseconds, 0) / 1000
  console.log(row(driver, topic, passed, ofTopic.length - passed, seconds.toFixed(1)))
}

function row(driver, topic, ...numbers) {
  return [driver.padEnd(8), topic.padEnd(28), ...numbers.map((number) => String(number).padStart(8))].join("")
}
