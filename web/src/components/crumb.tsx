import { Link } from '@tanstack/react-router';

/** A link to the list that the screen belongs to, before the name of the screen. */
export function Crumb({
  to,
  label,
}: {
  readonly to: '/projects' | '/datasets' | '/prompts' | '/queues' | '/agents' | '/exports';
  readonly label: string;
}) {
  return (
    <>
      <Link to={to} className="crumb">
        {label}
      </Link>
      <CrumbSeparator />
    </>
  );
}

/** Follows a link with the class `crumb`. */
export function CrumbSeparator() {
  return (
    <span className="crumb" aria-hidden="true">
      /
    </span>
  );
}
