/**
 * An argument that is computed when its connection is there, which in a busy pool is long after the call.
 */
export class Late {
  readonly value: () => unknown

  constructor(value: () => unknown) {
    this.value = value
  }

  /** For `pg`, which asks when it sends the statement. */
  toPostgres(): string {
    return JSON.stringify(this.value())
  }

  /** For the Prisma client of an application. */
  toJSON(): unknown {
    return this.value()
  }
}
