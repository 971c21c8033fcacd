"""Read environment settings like the keys of a config: ``.env`` files, exports of shell scripts, variables of this process."""
