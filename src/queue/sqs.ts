// oxlint-disable-next-line unicorn/require-module-specifiers -- its module comes next
export {}
