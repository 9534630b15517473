/** Returns a search parameter as text; undefined if it is empty. The router reads texts such as `1` as a number. */
export function readText(value: unknown): string | undefined {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** Returns a search parameter that is a key of `named`. Inherited keys, such as `constructor`, are none. */
export function readKey<Key extends string>(named: Readonly<Record<Key, unknown>>, value: unknown): Key | undefined {
  return typeof value === 'string' && Object.hasOwn(named, value) ? (value as Key) : undefined;
}

/** Returns a function that reads the named search parameters, which are all texts. */
export function readTexts<Name extends string>(...names: readonly Name[]) {
  return (search: Record<string, unknown>) =>
    Object.fromEntries(names.map((name) => [name, readText(search[name])])) as { [Key in Name]?: string | undefined };
}
