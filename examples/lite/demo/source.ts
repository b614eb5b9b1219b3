/**
 * The data set: readings of 200 meters in 4 cities, generated from a seed, so that each run can be checked to the unit.
 */
import type { Meter } from "../shared/readings.ts"

export interface Source {
  readonly seed: number
  readonly meters: ReadonlyArray<Meter>
  readonly batches: ReadonlyArray<{ readonly id: string; readonly records: number; readonly ndjson: string }>
  readonly bytes: number
  readonly records: number
  /** Sum of all readings, by city. */
  readonly wattHours: ReadonlyMap<string, number>
}

const cities = ["Bremen", "Graz", "Lyon", "Porto"]
const intervalMs = 300_000

export const make = (options: {
  readonly seed: number
  readonly records: number
  readonly batchSize: number
}): Source => {
  const random = mulberry32(options.seed)
  const meters = Array.from({ length: 200 }, (_, i): Meter => ({
    id: `m-${String(i).padStart(4, "0")}`,
    city: cities[Math.floor(random() * cities.length)]!
  }))
  const wattHours = new Map(cities.map((city) => [city, 0]))
  const lines = Array.from({ length: options.records }, (_, i) => {
    const { city, id } = meters[i % meters.length]!
    const interval = Math.floor(i / meters.length)
    // More by day than by night.
    const mean = 25 + 20 * Math.sin((interval % 288) / 288 * 2 * Math.PI)
    const reading = {
      meter: id,
      at: new Date(Date.UTC(2030, 0, 1) + interval * intervalMs).toISOString(),
      wattHours: Math.round(mean * (0.5 + random())),
      voltage: Math.round((228 + 4 * random()) * 100) / 100
    }
    wattHours.set(city, wattHours.get(city)! + reading.wattHours)
    return JSON.stringify(reading)
  })
  const batches = Array.from({ length: Math.ceil(lines.length / options.batchSize) }, (_, i) => {
    const part = lines.slice(i * options.batchSize, (i + 1) * options.batchSize)
    return { id: `batch-${String(i).padStart(4, "0")}`, records: part.length, ndjson: `${part.join("\n")}\n` }
  })
  return {
    seed: options.seed,
    meters,
    batches,
    bytes: batches.reduce((sum, { ndjson }) => sum + Buffer.byteLength(ndjson), 0),
    records: lines.length,
    wattHours
  }
}

/** A small generator of numbers in [0, 1) that gives the same sequence for the same seed everywhere. */
const mulberry32 = (seed: number) => {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }
}
