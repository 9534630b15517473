/** Removes the fields that are null or undefined. */
export function dropNullish<T extends object>(
  values: T | null | undefined,
): { [Key in keyof T]?: NonNullable<T[Key]> } {
  const given = Object.entries(values ?? {}).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(given) as ReturnType<typeof dropNullish<T>>;
}
