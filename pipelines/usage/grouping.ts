/** Dimensions that usage can be grouped by. SPEC.md 4.2. */
export const groupings = ['workspace', 'project', 'user', 'api_key'] as const;
export type Grouping = (typeof groupings)[number];
