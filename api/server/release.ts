/** The release; a test keeps it equal to the version in `package.json`. */
export const releaseVersion = '0.1.0';
