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
