/**
 * The table at the end.
 */
import type { Report } from "./audit.ts"
import type { Source } from "./source.ts"
import type { Run } from "./story.ts"

export const table = (source: Source, run: Run, report: Report): string => {
  const rule = "-".repeat(84)
  const row = (name: string, value: string | number, note = "") =>
    `${name.padEnd(32)}${String(value).padStart(9)}  ${note}`.trimEnd()
  const number = (n: number) => n.toLocaleString("en-US")
  const sum = (of: "tasks" | "attempts") => report.tasks.reduce((total, task) => total + task[of], 0)
  return [
    rule,
    row(
      "records generated",
      number(source.records),
      `${(source.bytes / 1e6).toFixed(1)} MB of NDJSON, seed ${source.seed}`
    ),
    row("batches", source.batches.length, `${report.batches.twice} of them sent twice`),
    row("  committed", report.batches.committed, "once each"),
    rule,
    row("tasks", sum("tasks")),
    ...report.tasks.map(({ attempts, name, tasks }) => row(`  ${name}`, tasks, `${attempts} attempts`)),
    row("attempts", sum("attempts")),
    row("  lost", report.lost, "killed or silent for too long; another attempt followed"),
    row("  failed", report.failed, "and tried again"),
    row("stale commits rejected", report.stale, `${report.orphans} files of attempts that were not committed`),
    row("outbox rows", report.outbox, "all sent"),
    rule,
    row(
      "records queried",
      number(run.summary.records),
      `${number(run.summary.distinct)} distinct, version ${run.version}`
    ),
    ...[...source.wattHours].map(([city, wattHours]) => row(`  ${city}`, number(wattHours), "Wh, as generated")),
    row("deliveries", run.deliveries.length, run.deliveries.join(", ")),
    row("counts by cron", report.censuses.cron),
    row("counts by webhook", report.censuses.webhook, `which came ${run.webhooksSent} times`),
    rule,
    row("time", `${(run.elapsedMs / 1000).toFixed(1)} s`, "of the client"),
    rule
  ].join("\n")
}
