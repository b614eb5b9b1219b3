/**
 * Packs the package once for all files that install it.
 */
import { rm } from "node:fs/promises"
import type { TestProject } from "vitest/node"
import * as Packed from "../utils/packed.ts"

declare module "vitest" {
  export interface ProvidedContext {
    /** The packed package. */
    tarball: string
  }
}

export default async function setup(project: TestProject) {
  const { folder, tarball } = await Packed.pack()
  project.provide("tarball", tarball)
  return () => rm(folder, { recursive: true })
}
