// Steps the wall clock of its process, back and forth: `node --import ./clock.js …` with CHAOS_CLOCK as seed. Only
// `Date` is stepped, as on a host whose time is set: the monotonic clock continues.
import { random } from "./random.ts"

const steps = [1_000, 5_000, 60_000, 600_000, 3_600_000].flatMap((ms) => [ms, -ms])
const chance = random(Number(process.env.CHAOS_CLOCK))
const realNow = Date.now.bind(Date)
let offsetMs = 0

Date.now = () => realNow() + offsetMs
globalThis.Date = new Proxy(Date, {
  construct: (target, values, newTarget) =>
    Reflect.construct(target, values.length === 0 ? [target.now()] : values, newTarget) as Date,
  apply: () => new Date().toString()
})

const step = () => {
  offsetMs = chance.one(steps)
  setTimeout(step, chance.between(500, 5_000)).unref()
}
setTimeout(step, chance.between(500, 3_000)).unref()
