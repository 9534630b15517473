import { readFileSync } from 'node:fs';
import { type Page, page, table } from './markdown.ts';

interface Entry {
  readonly version: string;
  readonly license?: string;
  readonly dev?: boolean;
}

/** Licences of packages whose manifest names none, from their licence files. */
const licences: Readonly<Record<string, string>> = {
  '@kafkajs/confluent-schema-registry': 'MIT',
  buildcheck: 'MIT',
  'cpu-features': 'MIT',
  ssh2: 'MIT',
};

/** Packages that Runlake needs at run time, without those of tests and tools. */
export function thirdPartyPage(): Page {
  const { packages } = JSON.parse(readFileSync(new URL('../../package-lock.json', import.meta.url), 'utf8')) as {
    packages: Readonly<Record<string, Entry>>;
  };
  const rows = new Map<string, readonly string[]>();
  for (const [place, { version, license, dev }] of Object.entries(packages)) {
    if (place === '' || dev === true) continue;
    const name = place.slice(place.lastIndexOf('node_modules/') + 'node_modules/'.length);
    const licence = license ?? licences[name];
    if (licence === undefined)
      throw new Error(`${name} ${version} names no licence: add it to docs/pages/third-party.ts`);
    rows.set(`${name} ${version}`, [name, version, licence]);
  }
  return page(
    'third-party.md',
    'Third-party packages',
    'package-lock.json',
    'Packages that are installed with Runlake, and their licences by SPDX identifier. Each package contains its own licence text.',
    table(
      ['Package', 'Version', 'Licence'],
      [...rows].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, row]) => row),
    ),
  );
}
