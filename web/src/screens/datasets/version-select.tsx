import { formatTime, parseTime } from '../../components/format.ts';
import { showInvisible } from '../../components/text.tsx';
import type { Version } from './use-versions.ts';

/** A selection of one version. `fallback` is the option for none. */
export function VersionSelect({
  label,
  fallback,
  versions,
  version,
  onSelect,
}: {
  readonly label: string;
  /** Label of the option for none. */
  readonly fallback: string;
  readonly versions: readonly Version[];
  readonly version: string | undefined;
  readonly onSelect: (version: string | undefined) => void;
}) {
  const current = versions.find(
    ({ as_of, tags }) => as_of === version || (version !== undefined && tags.includes(version)),
  );
  return (
    <select
      className="input version-select"
      aria-label={label}
      value={current?.as_of ?? version ?? ''}
      onChange={({ target }) => onSelect(target.value || undefined)}
    >
      <option value="">{fallback}</option>
      {version !== undefined && current === undefined && <option value={version}>{showInvisible(version)}</option>}
      {versions.map((each) => (
        <option key={each.as_of} value={each.as_of}>
          {describeVersion(each)}
        </option>
      ))}
    </select>
  );
}

const maxShownTags = 5;

/** Returns the time of a version with its tags, as a text. */
function describeVersion({ as_of, tags }: Version): string {
  const time = formatTime(parseTime(as_of), new Date());
  const shown = tags.slice(-maxShownTags).map(showInvisible);
  if (tags.length > maxShownTags) shown.push('…');
  return tags.length === 0 ? time : `${time} · ${shown.join(', ')}`;
}
