/** The reason of an operator who gives none. */
export const byOperator = "by an operator"
