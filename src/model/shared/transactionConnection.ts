/**
 * Connections of the application, as the operations take them that join its transaction.
 */

/**
 * A connection in a transaction: the `tx` of `prisma.$transaction(async (tx) => …)`, of any generated client, or a `pg`
 * client after `BEGIN`.
 *
 * @category models
 * @since 0.1.0
 */
export type TransactionConnection =
  | { readonly $queryRaw: (strings: TemplateStringsArray, ...values: Array<any>) => PromiseLike<unknown> }
  | { readonly query: (text: string, values: Array<any>) => PromiseLike<{ readonly rows: ReadonlyArray<unknown> }> }

/**
 * How a transaction of the application begins and ends, and which connection it has.
 *
 * @category models
 * @since 0.3.0
 */
export interface Transactions<in out Tx> {
  /**
   * Begins a transaction, calls `body` with it, and commits. If `body` rejects, it rolls back and rejects. It may begin
   * anew and call `body` again, as after a serialization failure.
   */
  readonly run: <A>(body: (tx: Tx) => Promise<A>) => Promise<A>
  /** The connection of the transaction. */
  readonly connection: (tx: Tx) => TransactionConnection
}
